// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>&1 | filecheck %s

// A barrier in the body holds rows of what is cut and all of the matrix; what else it held, a slice of the captured
// tensor by steps, it holds in rows as well, and none of that tensor is read complete.

// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<256xf32>
// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<[[ROWS:[0-9]+]]x200xf32>
// CHECK-NOT: sizes = [1, 256, 200]
// CHECK: stablehlo.optimization_barrier {{.*}} : tensor<[[ROWS]]x200xf32>, tensor<[[ROWS]]x200xf32>, tensor<200x200xf32>
// CHECK-NOT: stablehlo.optimization_barrier
// CHECK-NOT: not split

func.func @main(%a: tensor<256x200xf32>, %w: tensor<200x200xf32>, %steps: tensor<3x256x200xf32>) -> tensor<256xf32> {
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<3> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %b = stablehlo.exponential %a : tensor<256x200xf32>
  %loop:2 = stablehlo.while(%i = %i0, %x = %b) : tensor<i32>, tensor<256x200xf32>
    cond {
      %go = stablehlo.compare LT, %i, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %0 = stablehlo.dynamic_slice %steps, %i, %i0, %i0, sizes = [1, 256, 200] : (tensor<3x256x200xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x256x200xf32>
      %1 = stablehlo.reshape %0 : (tensor<1x256x200xf32>) -> tensor<256x200xf32>
      %2:3 = stablehlo.optimization_barrier %x, %1, %w : tensor<256x200xf32>, tensor<256x200xf32>, tensor<200x200xf32>
      %3 = stablehlo.dot_general %2#0, %2#2, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200x200xf32>) -> tensor<256x200xf32>
      %4 = stablehlo.add %3, %2#1 : tensor<256x200xf32>
      %5 = stablehlo.tanh %4 : tensor<256x200xf32>
      stablehlo.return %next, %5 : tensor<i32>, tensor<256x200xf32>
    }
  %sum = stablehlo.reduce(%loop#1 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<256x200xf32>, tensor<f32>) -> tensor<256xf32>
  return %sum : tensor<256xf32>
}
