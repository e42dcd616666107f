// RUN: %exla-opt %s --passes=normalise,order-statistics --size-threshold=40KB --split-size=20KB --remarks=passed 2>&1 | filecheck %s

// The middle of all products: 4 bits of it are found in each of 8 passes. A pass makes the products anew, from what comes
// through a barrier with the number of the trip.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:.*]]: tensor<120x4xf32>, %[[B:.*]]: tensor<110x4xf32>)
// CHECK-NOT: sort
// CHECK: %[[RANK:.*]] = stablehlo.constant dense<6600> : tensor<ui32>
// CHECK: %[[LOOP:.*]]:2 = stablehlo.while(%[[I:.*]] = %{{.*}}, %[[KEY:.*]] = %{{.*}}) : tensor<i32>, tensor<ui32>
// CHECK: stablehlo.constant dense<8> : tensor<i32>
// CHECK: %[[HELD:.*]]:3 = stablehlo.optimization_barrier %[[A]], %[[B]], %[[I]]
// CHECK: %[[D:.*]] = stablehlo.dot_general %[[HELD]]#0, %[[HELD]]#1
// CHECK: %[[NAN:.*]] = stablehlo.compare NE, %[[D]], %[[D]], FLOAT
// CHECK: %[[X:.*]] = stablehlo.select %[[NAN]], %{{.*}}, %[[D]]
// CHECK: stablehlo.bitcast_convert %[[X]] : (tensor<120x110xf32>) -> tensor<120x110xui32>
// CHECK: %[[BELOW:.*]]:15 = stablehlo.reduce
// CHECK-SAME: across dimensions = [0, 1]
// CHECK: stablehlo.compare LE, %[[BELOW]]#0, %[[RANK]], UNSIGNED
// CHECK: stablehlo.compare LE, %[[BELOW]]#14, %[[RANK]], UNSIGNED
// CHECK: %[[SHIFTED:.*]] = stablehlo.shift_left
// CHECK: %[[NEXT:.*]] = stablehlo.add %[[KEY]], %[[SHIFTED]]
// CHECK: stablehlo.return %{{.*}}, %[[NEXT]]
// CHECK: %[[M:.*]] = stablehlo.bitcast_convert %{{.*}} : (tensor<ui32>) -> tensor<f32>
// CHECK: return
// CHECK: not sorted: 1 element is found by counting, in 8 passes [order-statistics, EX008]

func.func @main(%a: tensor<120x4xf32>, %b: tensor<110x4xf32>) -> tensor<1xf32> {
  %d = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<120x4xf32>, tensor<110x4xf32>) -> tensor<120x110xf32>
  %x = stablehlo.reshape %d : (tensor<120x110xf32>) -> tensor<13200xf32>
  %s = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %nan = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %0 = stablehlo.compare EQ, %p, %zero, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %1 = stablehlo.select %0, %zero, %p : tensor<i1>, tensor<f32>
    %2 = stablehlo.compare NE, %p, %p, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %3 = stablehlo.select %2, %nan, %1 : tensor<i1>, tensor<f32>
    %4 = stablehlo.compare EQ, %q, %zero, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %5 = stablehlo.select %4, %zero, %q : tensor<i1>, tensor<f32>
    %6 = stablehlo.compare NE, %q, %q, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %7 = stablehlo.select %6, %nan, %5 : tensor<i1>, tensor<f32>
    %8 = stablehlo.compare LT, %3, %7, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %8 : tensor<i1>
  }) : (tensor<13200xf32>) -> tensor<13200xf32>
  %m = stablehlo.slice %s [6600:6601] : (tensor<13200xf32>) -> tensor<1xf32>
  return %m : tensor<1xf32>
}
