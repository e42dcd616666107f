// RUN: %exla-opt %s --passes=normalise | filecheck %s

// TensorFlow's loops count once for each list that they fill, and ask about two counters; a gradient counts down the
// last position. A list of all positions is read back as the position.

// CHECK-DAG: %[[FIVE:.+]] = stablehlo.constant dense<5> : tensor<i32>
// CHECK-DAG: %[[LAST:.+]] = stablehlo.constant dense<4> : tensor<i32>
// CHECK: %[[FILLED:.+]]:{{.+}} = stablehlo.while(%[[I:.+]] = %{{.+}}, %[[LIST:[^ ]+]] = %{{.+}}, %{{.+}} = %{{.+}}) : tensor<i32>, tensor<5x3xf32>, tensor<5xi32>
// CHECK: %[[LESS:.+]] = stablehlo.compare LT, %[[I]], %[[FIVE]]
// CHECK: stablehlo.and %[[LESS]], %[[LESS]]
// CHECK: stablehlo.dynamic_update_slice %[[LIST]], %{{.+}}, %[[I]], %{{.+}}
// CHECK: stablehlo.while(%[[J:.+]] = %{{.+}}, %{{.+}} = %{{.+}}, %[[DOWN:.+]] = %[[FIVE]])
// CHECK: stablehlo.compare LT, %[[J]], %[[FIVE]]
// CHECK: %[[BEFORE:.+]] = stablehlo.subtract %[[DOWN]], %{{.+}} : tensor<i32>
// CHECK: %[[AT:.+]] = stablehlo.clamp %{{.+}}, %[[BEFORE]], %[[LAST]] : tensor<i32>
// CHECK-NEXT: %[[ONE:.+]] = stablehlo.reshape %[[AT]] : (tensor<i32>) -> tensor<1xi32>
// CHECK-NEXT: %[[ROW:.+]] = stablehlo.reshape %[[ONE]] : (tensor<1xi32>) -> tensor<i32>
// CHECK-NEXT: stablehlo.dynamic_slice %[[FILLED]]#1, %[[ROW]], %{{.+}}

func.func public @main(%x: tensor<5x3xf32>) -> tensor<3xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %five = stablehlo.constant dense<5> : tensor<i32>
  %empty = stablehlo.constant dense<0.0> : tensor<5x3xf32>
  %none = stablehlo.constant dense<0> : tensor<5xi32>
  %0:6 = stablehlo.while(%i = %zero, %j = %zero, %list = %empty, %k = %zero, %positions = %none, %l = %zero) : tensor<i32>, tensor<i32>, tensor<5x3xf32>, tensor<i32>, tensor<5xi32>, tensor<i32>
  cond {
    %1 = stablehlo.compare LT, %i, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %2 = stablehlo.compare LT, %j, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %3 = stablehlo.and %1, %2 : tensor<i1>
    stablehlo.return %3 : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %x, %j, %zero, sizes = [1, 3] : (tensor<5x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
    %2 = stablehlo.exponential %1 : tensor<1x3xf32>
    %3 = stablehlo.dynamic_update_slice %list, %2, %k, %zero : (tensor<5x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) -> tensor<5x3xf32>
    %4 = stablehlo.reshape %j : (tensor<i32>) -> tensor<1xi32>
    %5 = stablehlo.dynamic_update_slice %positions, %4, %l : (tensor<5xi32>, tensor<1xi32>, tensor<i32>) -> tensor<5xi32>
    %6 = stablehlo.add %i, %one : tensor<i32>
    %7 = stablehlo.add %j, %one : tensor<i32>
    %8 = stablehlo.add %k, %one : tensor<i32>
    %9 = stablehlo.add %l, %one : tensor<i32>
    stablehlo.return %6, %7, %3, %8, %5, %9 : tensor<i32>, tensor<i32>, tensor<5x3xf32>, tensor<i32>, tensor<5xi32>, tensor<i32>
  }
  %sum = stablehlo.constant dense<0.0> : tensor<3xf32>
  %10:4 = stablehlo.while(%i = %zero, %total = %sum, %k = %0#3, %l = %0#5) : tensor<i32>, tensor<3xf32>, tensor<i32>, tensor<i32>
  cond {
    %1 = stablehlo.compare LT, %i, %0#0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.subtract %l, %one : tensor<i32>
    %2 = stablehlo.dynamic_slice %0#4, %1, sizes = [1] : (tensor<5xi32>, tensor<i32>) -> tensor<1xi32>
    %3 = stablehlo.reshape %2 : (tensor<1xi32>) -> tensor<i32>
    %4 = stablehlo.dynamic_slice %0#2, %3, %zero, sizes = [1, 3] : (tensor<5x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
    %5 = stablehlo.reshape %4 : (tensor<1x3xf32>) -> tensor<3xf32>
    %6 = stablehlo.subtract %5, %total : tensor<3xf32>
    %7 = stablehlo.subtract %k, %one : tensor<i32>
    %8 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %8, %6, %7, %1 : tensor<i32>, tensor<3xf32>, tensor<i32>, tensor<i32>
  }
  return %10#1 : tensor<3xf32>
}
